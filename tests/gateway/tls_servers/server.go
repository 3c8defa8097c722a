// A TLS server of Go's standard library: accepts, completes handshakes, says "hello".
package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
)

func main() {
	pair, err := tls.LoadX509KeyPair(os.Args[1], os.Args[1])
	if err != nil {
		panic(err)
	}
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	listener := tls.NewListener(plain, &tls.Config{Certificates: []tls.Certificate{pair}})
	fmt.Println(plain.Addr().(*net.TCPAddr).Port)
	for {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			connection.Write([]byte("hello"))
			connection.Close()
		}()
	}
}
