//! The server through a real socket, with tiny models whose answers the peers computed.

mod client;
mod faults;
mod glass;
mod glass_hostile;
mod glass_pairs;
mod glass_parts;
mod hostile;
mod lifecycle;
mod openai;
mod plain;
mod random;
mod runs;
mod sequences;
mod speech;
mod tiny;
mod v2;
