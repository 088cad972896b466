package loopback

import "net"

// reserve only finds a free port: macOS lets nobody listen on a port that
// another socket is bound to.
func reserve() (*Port, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	number := l.Addr().(*net.TCPAddr).Port
	return &Port{number: number, release: func() error { return nil }}, l.Close()
}
