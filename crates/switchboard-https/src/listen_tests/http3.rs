//! HTTP/3 with a client on quinn and h3.
