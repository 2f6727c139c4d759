//! JSON beyond what serde offers: strict parsing, canonical form (RFC 8785), and raw objects.

mod canonical;
mod raw_object;
mod strict;

pub use canonical::{canonicalize, canonicalize_any};
pub use raw_object::{RawObject, deserialize_present, to_raw};
pub use strict::{PARSER_DEPTH, StrictRules, parse_strict};

#[cfg(test)]
mod test_values;
