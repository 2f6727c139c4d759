//! Trust boundary of a cloned repository: files that may decide something, and files that may not.

mod database;
mod home;
mod owner;
mod programs;
mod router;
mod settings;
mod side_files;
mod variables;
