"""The demo: a whole pipeline, one fault, one verdict, on a screen."""
