package loopback

import (
	"os"
	"syscall"
)

// reserve binds a socket and never listens on it. Linux allows other sockets to bind the same
// port by its number if all of them set SO_REUSEADDR and none of them listens, but does not
// choose the port for a socket that asks for any port.
func reserve() (*Port, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	number, err := bind(fd)
	if err != nil {
		_ = syscall.Close(fd) // nothing was sent, so nothing is lost
		return nil, err
	}
	return &Port{number: number, release: os.NewFile(uintptr(fd), "reserved port").Close}, nil
}

func bind(fd int) (port int, err error) {
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, os.NewSyscallError("setsockopt", err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, os.NewSyscallError("bind", err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		return 0, os.NewSyscallError("getsockname", err)
	}
	return name.(*syscall.SockaddrInet4).Port, nil
}
