"""Projects from git: check a version, put it in place, bring it to this host."""
