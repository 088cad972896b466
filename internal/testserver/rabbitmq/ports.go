//go:build darwin || linux

package rabbitmq

import (
	"errors"

	"github.com/reprise-go/reprise/internal/testserver/loopback"
)

// ports are the ports on which a server listens.
type ports struct {
	amqp, tls, management *loopback.Port
	names                 *loopback.Port // epmd's
	nodes                 *loopback.Port // for other nodes and rabbitmqctl
}

func reservePorts() (ports, error) {
	var p ports
	for _, port := range p.all() {
		reserved, err := loopback.Reserve()
		if err != nil {
			return ports{}, errors.Join(err, p.release())
		}
		*port = reserved
	}
	return p, nil
}

func (p *ports) all() []**loopback.Port {
	return []**loopback.Port{&p.amqp, &p.tls, &p.management, &p.names, &p.nodes}
}

func (p *ports) release() (err error) {
	for _, port := range p.all() {
		if *port != nil {
			err = errors.Join(err, (*port).Release())
		}
	}
	return err
}
