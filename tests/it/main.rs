//! The program from outside: command line, HTTP, sockets. One binary, because linking is the cost.

mod check_config;
mod decode;
mod program;
