"""The exact rung: true worst cases over whole classes of instances."""
