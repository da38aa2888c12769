"""The libraries, and the objects, that define which ids are right."""
