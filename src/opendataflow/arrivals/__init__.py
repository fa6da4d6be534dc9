"""What comes from outside: files, tables, and slots of clocks."""
