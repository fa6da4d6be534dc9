"""What becomes of a dataid: the five questions, the runs, their ends, and the states that follow."""
