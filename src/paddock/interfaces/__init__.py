"""How people and programs reach Paddock."""
