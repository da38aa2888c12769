"""How a record becomes texts, where no field holds the text as it is."""
