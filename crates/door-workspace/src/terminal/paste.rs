//! Whether a program asked for bracketed paste, told from what it writes. Pure.

/// The private mode that a program sets to get pastes with marks around them.
const BRACKETED: u32 = 2004;

/// More parameters than this, or a larger number, and it is not a sequence that concerns us.
const LONGEST: usize = 64;

/// Follows a program's output and knows whether bracketed paste is on.
///
/// The output may be cut anywhere: what stands between two pieces is kept in here.
#[derive(Debug, Clone, Default)]
pub struct PasteMode {
    is_on: bool,
    state: State,
    parameters: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Text,
    Escape,
    /// After `ESC [`.
    Sequence,
    /// After `ESC [ ?`.
    Private,
}

impl PasteMode {
    /// Whether the program wants marks around what is pasted.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Takes note of the next piece of output.
    pub fn read(&mut self, output: &[u8]) {
        for &byte in output {
            self.state = self.step(byte);
        }
    }

    fn step(&mut self, byte: u8) -> State {
        match (self.state, byte) {
            (_, 0x1b) => State::Escape,
            (State::Escape, b'[') => State::Sequence,
            // A full reset turns every mode off.
            (State::Escape, b'c') => {
                self.is_on = false;
                State::Text
            }
            (State::Sequence, b'?') => {
                self.parameters.clear();
                State::Private
            }
            (State::Private, b'0'..=b'9' | b';') if self.parameters.len() < LONGEST => {
                self.parameters.push(byte);
                State::Private
            }
            (State::Private, b'h' | b'l') => {
                if self.names_it() {
                    self.is_on = byte == b'h';
                }
                State::Text
            }
            _ => State::Text,
        }
    }

    fn names_it(&self) -> bool {
        let parameters = std::str::from_utf8(&self.parameters).unwrap_or_default();
        parameters.split(';').any(|parameter| parameter.parse() == Ok(BRACKETED))
    }
}

#[cfg(test)]
#[path = "paste_tests.rs"]
mod tests;
