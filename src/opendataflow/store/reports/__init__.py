"""Questions to the store that cost the same however long the history is: grids, gaps, lineage, lists."""
