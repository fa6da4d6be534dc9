"""The commands `dataflow` and `RunJob`."""
