//! Complete questions: a real MCP session, a real child, and a scripted model.

mod anthropic;
mod bounds;
mod command;
mod openai;
pub(super) mod rig;
mod stub;
