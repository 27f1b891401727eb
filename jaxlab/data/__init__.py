"""Real inputs out of installed packages, each with its licence and a checksum."""
