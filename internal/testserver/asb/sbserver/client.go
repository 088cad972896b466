//go:build darwin || linux

package sbserver

import (
	"maps"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
)

const (
	cbsAddress       = "$cbs"
	managementSuffix = "/$management"
)

// client is a connection to the server. It is the handler of its links.
type client struct {
	server *Server
	run    *listening
	conn   *amqp10.Conn

	mu        sync.Mutex
	links     map[*amqp10.Link]string // the path of the entity of each link
	replies   map[string]*replies     // by the target of the link
	receivers map[string]*receiver    // by the name of the link
	tokens    map[string]*token       // by the path of the audience
}

func newClient(s *Server, run *listening, nc net.Conn) *client {
	c := &client{
		server:    s,
		run:       run,
		links:     map[*amqp10.Link]string{},
		replies:   map[string]*replies{},
		receivers: map[string]*receiver{},
		tokens:    map[string]*token{},
	}
	c.conn = amqp10.NewConn(nc, s.cfg.AMQP, c)
	return c
}

// close ends the timers of the tokens.
func (c *client) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.tokens {
		t.stop()
	}
}

func (c *client) broker() *broker.Broker { return c.server.Broker() }

// entityPath returns the path of an address, which may be a URL.
func entityPath(address string) string {
	if _, after, ok := strings.Cut(address, "://"); ok {
		_, address, _ = strings.Cut(after, "/")
	}
	return strings.Trim(address, "/")
}

func hasSuffixFold(s, suffix string) bool {
	return len(s) >= len(suffix) && strings.EqualFold(s[len(s)-len(suffix):], suffix)
}

// addLink registers an attached link until it ends.
func (c *client) addLink(l *amqp10.Link, path string) {
	c.mu.Lock()
	c.links[l] = path
	c.mu.Unlock()
}

func (c *client) removeLink(l *amqp10.Link) {
	c.mu.Lock()
	delete(c.links, l)
	c.mu.Unlock()
}

// linksOf returns the links of the entities that match.
func (c *client) linksOf(match func(path string) bool) []*amqp10.Link {
	c.mu.Lock()
	all := maps.Clone(c.links)
	c.mu.Unlock()
	var links []*amqp10.Link
	for l, path := range all {
		if match(path) {
			links = append(links, l)
		}
	}
	return links
}

// after calls f once d has passed, unless the run or the connection ends first.
func (c *client) after(d time.Duration, f func()) {
	c.run.mu.Lock()
	defer c.run.mu.Unlock()
	if c.run.ended { // its tasks are already being waited for
		return
	}
	c.run.tasks.Go(func() {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			f()
		case <-c.conn.Done():
		case <-c.run.closing:
		}
	})
}
