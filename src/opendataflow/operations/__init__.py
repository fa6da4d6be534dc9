"""What people ask and do, for commands and server alike."""
