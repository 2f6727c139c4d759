//! Certificates from a real ACME server.
