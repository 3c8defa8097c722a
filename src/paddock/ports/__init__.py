"""What Paddock needs from the world, as interfaces."""
