"""Files of the lake and the checkpoint, on a local file system or in an object store."""
