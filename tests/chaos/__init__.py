"""Random disturbances of Holdfast itself, after which no healthy node may have been repaired."""
