"""Files in object stores, through Arrow: no jar, no Java. Arrow is imported when a file is looked at, not before."""
