//! The bytes of the contract: msgpack with named fields (the bus) and JSON (people, HTTP).
