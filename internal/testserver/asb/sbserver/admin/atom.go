package admin

import (
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strconv"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
)

const atomSchema = "http://www.w3.org/2005/Atom"

type feed struct {
	XMLName xml.Name `xml:"feed"`
	Schema  string   `xml:"xmlns,attr"`
	ID      string   `xml:"id"`
	Title   title    `xml:"title"`
	Updated string   `xml:"updated"`
	Link    link     `xml:"link"`
	Entries []*entry `xml:"entry"`
}

type entry struct {
	XMLName   xml.Name `xml:"entry"`
	Schema    string   `xml:"xmlns,attr"`
	ID        string   `xml:"id"`
	Title     title    `xml:"title"`
	Published string   `xml:"published"`
	Updated   string   `xml:"updated"`
	Author    string   `xml:"author>name"`
	Link      link     `xml:"link"`
	Content   content  `xml:"content"`
}

type title struct {
	Type string `xml:"type,attr"`
	Text string `xml:",chardata"`
}

type link struct {
	Rel  string `xml:"rel,attr"`
	HRef string `xml:"href,attr"`
}

type content struct {
	Type        string `xml:"type,attr"`
	Description any
}

// A received is an entry of a client.
type received struct {
	XMLName xml.Name `xml:"entry"`
	Content struct {
		Queue        *description     `xml:"QueueDescription"`
		Topic        *description     `xml:"TopicDescription"`
		Subscription *description     `xml:"SubscriptionDescription"`
		Rule         *ruleDescription `xml:"RuleDescription"`
	} `xml:"content"`
}

// A namespaceInfo describes the namespace.
type namespaceInfo struct {
	XMLName        xml.Name `xml:"NamespaceInfo"`
	Schema         string   `xml:"xmlns,attr"`
	CreatedTime    string
	MessagingSKU   string
	MessagingUnits *int64
	ModifiedTime   string
	Name           string
	NamespaceType  string
}

type errorBody struct {
	XMLName xml.Name `xml:"Error"`
	Code    int
	Detail  string
}

// namespaceInfo describes the namespace: "messaging units don't exist in the lower tiers"
// (azservicebus v1.11.0, TestAdminClient_GetNamespaceProperties).
func (h *Handler) namespaceInfo() *namespaceInfo {
	created := timestamp(h.Broker.Created())
	n := &namespaceInfo{
		Schema: connectSchema, CreatedTime: created, ModifiedTime: created, MessagingSKU: string(h.Broker.Tier()), Name: h.Broker.Namespace(),
		NamespaceType: "Messaging",
	}
	if h.Broker.Tier() == properties.Premium {
		n.MessagingUnits = new(int64(1))
	}
	return n
}

func (h *Handler) entry(r *http.Request, name string, description any) *entry {
	id, now := address(r), timestamp(h.Broker.Now())
	return &entry{
		Schema: atomSchema, ID: id, Title: title{"text", name}, Published: now, Updated: now, Author: h.Broker.Namespace(),
		Link: link{"self", path.Base(r.URL.Path)}, Content: content{"application/xml", description},
	}
}

func (h *Handler) feed(r *http.Request, name string, entries []*entry) *feed {
	id := address(r)
	return &feed{Schema: atomSchema, ID: id, Title: title{"text", name}, Updated: timestamp(h.Broker.Now()), Link: link{"self", id}, Entries: entries}
}

// reply writes an entry or an error.
func (h *Handler) reply(w http.ResponseWriter, r *http.Request, status int, e *entry, err error) {
	if err != nil {
		status, detail := statusOf(err)
		writeError(w, status, detail)
		return
	}
	h.write(w, r, status, e)
}

func (h *Handler) write(w http.ResponseWriter, _ *http.Request, status int, body any) {
	kind := "entry"
	if _, ok := body.(*feed); ok {
		kind = "feed"
	}
	writeXML(w, status, "application/atom+xml;type="+kind+";charset=utf-8", body)
}

func writeError(w http.ResponseWriter, status int, detail string) {
	writeXML(w, status, "application/xml; charset=utf-8", &errorBody{Code: status, Detail: detail})
}

func writeXML(w http.ResponseWriter, status int, contentType string, body any) {
	raw, err := xml.Marshal(body)
	if err != nil {
		status, raw = http.StatusInternalServerError, []byte("<Error><Code>500</Code></Error>")
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(raw)))
	w.WriteHeader(status)
	_, _ = w.Write(raw) // the client may have disconnected
}

// address returns the address of an entry or a feed.
func address(r *http.Request) string {
	u := url.URL{Scheme: "https", Host: r.Host, Path: r.URL.Path, RawQuery: r.URL.RawQuery}
	return u.String()
}

// statusOf returns the status and the detail of a refusal. A change of a property that cannot be
// changed is 400 (azservicebus v1.11.0, TestAdminClient_UpdateTopic and its like).
func statusOf(err error) (status int, detail string) {
	refusal, ok := errors.AsType[*condition.Error](err)
	if !ok {
		return http.StatusInternalServerError, "SubCode=50000. " + err.Error()
	}
	status = int(refusal.Status())
	switch refusal.Condition {
	case condition.NotAllowed:
		status = http.StatusBadRequest
	case condition.DetachForced:
		status = http.StatusServiceUnavailable
	}
	return status, fmt.Sprintf("SubCode=%d00. %s", status, refusal.Description)
}
