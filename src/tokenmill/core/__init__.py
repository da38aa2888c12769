"""What every package stands on: errors, records, paths, streams."""
