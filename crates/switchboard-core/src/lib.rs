//! The nouns and the pure rules of Switchboard.
