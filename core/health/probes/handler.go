package probes

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/reprise-go/reprise/core/health"
)

// response is the body of a response.
type response struct {
	Probe     string         `json:"probe"`
	OK        bool           `json:"ok"`
	Reasons   []reason       `json:"reasons,omitempty"`
	Endpoints []health.State `json:"endpoints"`
}

type reason struct {
	Endpoint string `json:"endpoint"`
	Text     string `json:"text"`
}

// handler answers 200, or 503 with the reasons of the endpoints that have one.
func (p *Probes) handler(probe string, reasonOf func(h *health.State) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Cache-Control", "no-store")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			header.Set("Allow", "GET, HEAD")
			http.Error(w, "use GET or HEAD", http.StatusMethodNotAllowed)
			return
		}
		a := p.probe(probe, reasonOf)
		body, err := json.Marshal(a)
		if err != nil { // a name that is not UTF-8 is replaced, so nothing can fail
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		header.Set("Content-Type", "application/json")
		header.Set("X-Content-Type-Options", "nosniff")
		if !a.OK {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = w.Write(append(body, '\n')) // the client has gone
	})
}

func (p *Probes) probe(probe string, reasonOf func(h *health.State) string) response {
	a := response{Probe: probe, OK: true}
	for _, ep := range p.endpoints {
		h := ep.Health()
		if text := reasonOf(&h); text != "" && h.Queue != "" { // Run is never called for a send-only endpoint
			a.OK = false
			a.Reasons = append(a.Reasons, reason{h.Endpoint, text})
		}
		if !p.config.ErrorTexts {
			hideErrorTexts(&h)
		}
		a.Endpoints = append(a.Endpoints, h)
	}
	return a
}

// errHidden stands for an error whose text is not shown.
var errHidden = errors.New("see the log")

func hideErrorTexts(h *health.State) {
	for _, err := range []*error{&h.ConnectionError, &h.SendError, &h.RunError} {
		if *err != nil {
			*err = errHidden
		}
	}
	if h.LastCritical != nil {
		h.LastCritical = &health.CriticalError{Err: errHidden, At: h.LastCritical.At}
	}
}
