//! What a repository may decide, and what it may not: files of a clone.

mod database;
mod home;
mod owner;
mod programs;
mod router;
mod settings;
mod side_files;
mod variables;
