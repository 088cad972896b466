package loopback

import "net"

// reserve only finds a free port: macOS does not allow listening on a port to which another
// socket is bound.
func reserve() (*Port, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	number := l.Addr().(*net.TCPAddr).Port
	return &Port{number: number, release: func() error { return nil }}, l.Close()
}
