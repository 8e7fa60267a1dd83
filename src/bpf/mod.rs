//! Loads and attaches the steering program.
