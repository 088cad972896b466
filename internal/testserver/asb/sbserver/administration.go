//go:build darwin || linux

package sbserver

import (
	"net"
	"net/http"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/admin"
)

// administration is the listener of the administration API in one run of the server.
type administration struct {
	server   http.Server
	listener net.Listener
}

// administer serves the administration API until the run ends.
func (s *Server) administer(run *listening) error {
	l, err := net.Listen("tcp", s.adminAddr)
	if err != nil {
		return err
	}
	a := &administration{listener: l}
	a.server.Handler = &admin.Handler{Broker: s.Broker(), Refuse: s.refuseAdministration(run)}
	a.server.ReadHeaderTimeout = time.Minute
	run.administration = a
	s.mu.Lock()
	s.adminAddr = l.Addr().String() // of an AdminAddr with the port 0
	s.mu.Unlock()
	run.tasks.Go(func() { _ = a.server.Serve(l) }) // it always ends with http.ErrServerClosed
	return nil
}

// refuseAdministration returns the hook that counts requests, makes them fail, and
// authorizes them.
func (s *Server) refuseAdministration(run *listening) func(*http.Request) (int, string) {
	return func(r *http.Request) (int, string) {
		s.counts.add(OpAdministration, "")
		if f := s.faults.take(OpAdministration, ""); f != nil {
			t := time.NewTimer(f.Delay)
			defer t.Stop()
			select {
			case <-t.C:
			case <-run.closing:
			}
			switch f.Action {
			case Proceed:
			case Refuse:
				a := refusal(f.errorOr(ServerBusy.Condition, ServerBusy.Description))
				return int(a.status), a.description
			default:
				panic(http.ErrAbortHandler) // closes the connection without an answer
			}
		}
		token := r.Header.Get("Authorization")
		if token == "" {
			return http.StatusUnauthorized, "MissingToken: The authorization header was not found."
		}
		if err := s.checkToken(r.URL.String(), sharedAccess, token); err != nil {
			return http.StatusUnauthorized, err.Error()
		}
		return 0, ""
	}
}

// AdminAddr returns the address of the administration API, which is without TLS.
func (s *Server) AdminAddr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.adminAddr
}

// AdminTransport is an azcore Transporter that sends the requests of azservicebus/admin to a server,
// in place of https and the host of the connection string.
type AdminTransport struct {
	addr   string
	client http.Client
}

// NewAdminTransport returns a transport to the server at an address, such as [Server.AdminAddr]. It
// keeps no connections.
func NewAdminTransport(addr string) *AdminTransport {
	return &AdminTransport{addr: addr, client: http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
}

// Do sends a request and returns the answer, whose body the caller closes.
func (t *AdminTransport) Do(r *http.Request) (*http.Response, error) {
	redirected := r.Clone(r.Context())
	redirected.URL.Scheme, redirected.URL.Host = "http", t.addr
	return t.client.Do(redirected)
}
