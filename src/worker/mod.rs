//! Pinned threads that move batches of frames.
