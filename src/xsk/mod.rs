//! AF_XDP sockets, rings and UMEM.
