//! The server through a real socket, with tiny models whose answers the peers computed.

mod client;
mod faults;
mod hostile;
mod lifecycle;
mod openai;
mod plain;
mod random;
mod speech;
mod v2;
