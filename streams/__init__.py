"""The stream worker: windows and detectors over the probe rounds."""
