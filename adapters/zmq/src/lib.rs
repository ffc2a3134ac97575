//! ZeroMQ framing and sockets shared by the engines that speak it.
