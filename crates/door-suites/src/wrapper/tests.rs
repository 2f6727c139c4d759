//! Whole questions: a real MCP session, a real child, and a model that says what the test wants it to say.

mod anthropic;
mod bounds;
mod command;
mod openai;
pub(super) mod rig;
mod stub;
