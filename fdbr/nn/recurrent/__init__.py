"""Recurrent cells and layers, and cells over trees and time."""
