"""The parts of scripts/trial, one file each."""
