// Package admin serves the administration API of Service Bus, which is Atom with XML over HTTP: it
// creates, reads, changes, lists and deletes queues, topics, subscriptions and rules of a
// [broker.Broker], as far as azservicebus/admin uses it.
//
// The vendor does not describe the API. Its shape follows azservicebus v1.11.0: the models in
// internal/atom, the paths and the expected statuses in admin and its tests, which run against the
// service.
package admin

import (
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/rules"
)

// A Handler answers requests of the administration API. It may be used concurrently; its
// fields must not be changed after first use.
type Handler struct {
	Broker *broker.Broker
	// Refuse may refuse a request before it is answered: with 401 because of its token,
	// with 429 because of throttling, and so on. It returns 0 to accept it. By default a
	// request without the header Authorization is refused with 401.
	Refuse func(*http.Request) (status int, detail string)
}

// maxBody is the most bytes that the handler reads of a request's body.
const maxBody = 1 << 20

// pageSize is the number of entries in a list without $top: "100" (.NET reference,
// ServiceBusAdministrationClient.GetQueuesAsync).
const pageSize = 100

// ServeHTTP answers a request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	refuse := h.Refuse
	if refuse == nil {
		refuse = refuseAnonymous
	}
	if status, detail := refuse(r); status != 0 {
		writeError(w, status, detail)
		return
	}
	t, err := parseTarget(r.URL.Path)
	if err != nil {
		writeError(w, http.StatusBadRequest, "SubCode=40000. "+err.Error())
		return
	}
	switch r.Method {
	case http.MethodGet:
		h.get(w, r, t)
	case http.MethodPut:
		h.put(w, r, t)
	case http.MethodDelete:
		h.delete(w, t)
	default:
		writeError(w, http.StatusMethodNotAllowed, "SubCode=40500. The method "+r.Method+" is not supported.")
	}
}

func refuseAnonymous(r *http.Request) (status int, detail string) {
	if r.Header.Get("Authorization") == "" {
		return http.StatusUnauthorized, "40102: Missing authorization token."
	}
	return 0, ""
}

// A target is the parsed path of a request. A missing name stands for the list.
type target struct {
	info                        bool   // $namespaceinfo
	list                        string // Queues or Topics of $Resources
	entity, subscription, rule  string
	isSubscriptions, isRuleList bool
}

func parseTarget(path string) (t target, err error) {
	segments := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case strings.EqualFold(segments[0], "$namespaceinfo"):
		return target{info: true}, nil
	case strings.EqualFold(segments[0], "$Resources") && len(segments) == 2:
		if !strings.EqualFold(segments[1], "Queues") && !strings.EqualFold(segments[1], "Topics") {
			return t, fmt.Errorf("there is no resource %q", segments[1])
		}
		return target{list: strings.ToLower(segments[1])}, nil
	}
	at := -1
	for i, s := range segments {
		if i > 0 && strings.EqualFold(s, "Subscriptions") {
			at = i
		}
	}
	if at < 0 {
		t.entity = strings.Join(segments, "/")
		if t.entity == "" {
			return t, errors.New("the path names no entity")
		}
		return t, nil
	}
	t.entity, t.isSubscriptions = strings.Join(segments[:at], "/"), true
	switch rest := segments[at+1:]; {
	case len(rest) > 3 || len(rest) >= 2 && !strings.EqualFold(rest[1], "Rules"):
		return t, fmt.Errorf("the path %q is not known", path)
	case len(rest) == 3:
		t.subscription, t.rule, t.isRuleList = rest[0], rest[2], true
	case len(rest) == 2:
		t.subscription, t.isRuleList = rest[0], true
	case len(rest) == 1:
		t.subscription = rest[0]
	}
	return t, nil
}

func (h *Handler) get(w http.ResponseWriter, r *http.Request, t target) {
	switch {
	case t.info:
		h.write(w, r, http.StatusOK, h.entry(r, h.Broker.Namespace(), h.namespaceInfo()))
	case t.list != "" || t.isSubscriptions && t.subscription == "" || t.isRuleList && t.rule == "":
		h.getList(w, r, t)
	default:
		e, err := h.describe(r, t)
		if err != nil && !t.isSubscriptions && condition.Of(err) == condition.NotFound {
			// "if the entity is not found, instead of getting a 404 you actually get a <Feed> XML
			// object that is empty and an HTTP status code of 200" (azservicebus v1.11.0,
			// entity_manager.go).
			h.write(w, r, http.StatusOK, h.feed(r, "Publicly Listed Services", nil))
			return
		}
		h.reply(w, r, http.StatusOK, e, err)
	}
}

// describe returns the entry of a queue, topic, subscription or rule.
func (h *Handler) describe(r *http.Request, t target) (*entry, error) {
	switch {
	case t.rule != "":
		rules, err := h.Broker.Rules(t.entity, t.subscription)
		for _, rule := range rules {
			if strings.EqualFold(rule.Name, t.rule) {
				return h.entry(r, rule.Name, describeRule(rule)), nil
			}
		}
		if err == nil {
			err = &condition.Error{Condition: condition.NotFound, Description: fmt.Sprintf("The rule '%s' could not be found.", t.rule)}
		}
		return nil, err
	case t.subscription != "":
		s, err := h.Broker.Subscription(t.entity, t.subscription)
		if err != nil {
			return nil, err
		}
		return h.entry(r, s.Name, h.describeSubscription(s)), nil
	}
	if q, err := h.Broker.Queue(t.entity); err == nil {
		return h.entry(r, q.Name, h.describeQueue(q)), nil
	}
	topic, err := h.Broker.Topic(t.entity)
	if err != nil {
		return nil, err
	}
	d, err := h.describeTopic(topic)
	return h.entry(r, topic.Name, d), err
}

func (h *Handler) getList(w http.ResponseWriter, r *http.Request, t target) {
	all, title, err := h.all(r, t)
	if err != nil {
		h.reply(w, r, 0, nil, err)
		return
	}
	skip, top := 0, pageSize
	for name, p := range map[string]*int{"$skip": &skip, "$top": &top} {
		if text := r.URL.Query().Get(name); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil || n < 0 {
				writeError(w, http.StatusBadRequest, fmt.Sprintf("SubCode=40000. %s is %q, which is not a number.", name, text))
				return
			}
			*p = n
		}
	}
	all = all[min(skip, len(all)):]
	h.write(w, r, http.StatusOK, h.feed(r, title, all[:min(top, len(all))]))
}

// all returns the entries of a list.
func (h *Handler) all(r *http.Request, t target) (entries []*entry, title string, err error) {
	switch {
	case t.isRuleList:
		rules, err := h.Broker.Rules(t.entity, t.subscription)
		for _, rule := range rules {
			entries = append(entries, h.entry(r, rule.Name, describeRule(rule)))
		}
		return entries, "Rules", err
	case t.isSubscriptions:
		subscriptions, err := h.Broker.Subscriptions(t.entity)
		for _, s := range subscriptions {
			entries = append(entries, h.entry(r, s.Name, h.describeSubscription(s)))
		}
		return entries, "Subscriptions", err
	case t.list == "topics":
		topics, err := h.Broker.Topics()
		for _, topic := range topics {
			d, err := h.describeTopic(topic)
			if err != nil {
				return nil, "", err
			}
			entries = append(entries, h.entry(r, topic.Name, d))
		}
		return entries, "Topics", err
	}
	queues, err := h.Broker.Queues()
	for _, q := range queues {
		entries = append(entries, h.entry(r, q.Name, h.describeQueue(q)))
	}
	return entries, "Queues", err
}

// put creates an entity, or changes it if the request has the header If-Match.
func (h *Handler) put(w http.ResponseWriter, r *http.Request, t target) {
	var in received
	if err := xml.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&in); err != nil {
		writeError(w, http.StatusBadRequest, fmt.Sprintf("SubCode=40000. The body is not a valid entry: %v.", err))
		return
	}
	update := r.Header.Get("If-Match") != ""
	status := http.StatusCreated
	if update {
		status = http.StatusOK
	}
	if t.isRuleList && in.Content.Rule != nil && t.rule == "" {
		t.rule = in.Content.Rule.Name // the SDK does so for a rule without a name
	}
	if err := h.apply(t, &in, update); err != nil {
		h.reply(w, r, 0, nil, err)
		return
	}
	e, err := h.describe(r, t)
	h.reply(w, r, status, e, err)
}

// apply creates or changes the entity that an entry describes.
func (h *Handler) apply(t target, in *received, update bool) error {
	c := &in.Content
	switch {
	case t.rule != "" && c.Rule != nil:
		rule, err := c.Rule.rule()
		if err != nil {
			return invalid(err)
		}
		rule.Name = t.rule
		if update {
			return h.Broker.UpdateRule(t.entity, t.subscription, rule)
		}
		return h.Broker.CreateRule(t.entity, t.subscription, rule)
	case t.subscription != "" && !t.isRuleList && c.Subscription != nil:
		return h.applySubscription(t, c.Subscription, update)
	case !t.isSubscriptions && c.Queue != nil:
		p, err := c.Queue.queue()
		if err != nil {
			return invalid(err)
		}
		if !update {
			return h.Broker.CreateQueue(t.entity, p)
		}
		old, err := h.Broker.Queue(t.entity)
		if err != nil {
			return err
		}
		keep(c.Queue.RequiresSession, &p.RequiresSession, old.Properties.RequiresSession)
		keep(c.Queue.RequiresDuplicateDetection, &p.RequiresDuplicateDetection, old.Properties.RequiresDuplicateDetection)
		keep(c.Queue.EnablePartitioning, &p.EnablePartitioning, old.Properties.EnablePartitioning)
		h.standardSize(&p.MaxMessageSizeInKilobytes)
		return h.Broker.UpdateQueue(t.entity, p)
	case !t.isSubscriptions && c.Topic != nil:
		p, err := c.Topic.topic()
		if err != nil {
			return invalid(err)
		}
		if !update {
			return h.Broker.CreateTopic(t.entity, p)
		}
		old, err := h.Broker.Topic(t.entity)
		if err != nil {
			return err
		}
		keep(c.Topic.RequiresDuplicateDetection, &p.RequiresDuplicateDetection, old.Properties.RequiresDuplicateDetection)
		keep(c.Topic.EnablePartitioning, &p.EnablePartitioning, old.Properties.EnablePartitioning)
		h.standardSize(&p.MaxMessageSizeInKilobytes)
		return h.Broker.UpdateTopic(t.entity, p)
	}
	return invalid(errors.New("the body describes no entity that the path can name"))
}

func (h *Handler) applySubscription(t target, d *description, update bool) error {
	p, err := d.subscription()
	if err != nil {
		return invalid(err)
	}
	if update {
		old, err := h.Broker.Subscription(t.entity, t.subscription)
		if err != nil {
			return err
		}
		keep(d.RequiresSession, &p.RequiresSession, old.Properties.RequiresSession)
		if d.Status == nil { // the SDK never sends it
			p.Status = old.Properties.Status
		}
		return h.Broker.UpdateSubscription(t.entity, t.subscription, p)
	}
	first := rules.Rule{}
	if d.DefaultRuleDescription != nil {
		if first, err = d.DefaultRuleDescription.rule(); err != nil {
			return invalid(err)
		}
	}
	return h.Broker.CreateSubscription(t.entity, t.subscription, p, first)
}

// keep keeps the old value of a property that cannot be changed, if it is missing in a
// request.
func keep(sent, value *bool, old bool) {
	if sent == nil {
		*value = old
	}
}

// standardSize clears the size that a client read in the Standard tier, in which it is
// not a setting.
func (h *Handler) standardSize(kilobytes *int64) {
	if h.Broker.Tier() != properties.Premium && *kilobytes == 256 {
		*kilobytes = 0
	}
}

func (h *Handler) delete(w http.ResponseWriter, t target) {
	var err error
	switch {
	case t.rule != "":
		err = h.Broker.DeleteRule(t.entity, t.subscription, t.rule)
	case t.subscription != "" && !t.isRuleList:
		err = h.Broker.DeleteSubscription(t.entity, t.subscription)
	case t.entity != "" && !t.isSubscriptions:
		if err = h.Broker.DeleteQueue(t.entity); condition.Of(err) == condition.NotFound {
			err = h.Broker.DeleteTopic(t.entity)
		}
	default:
		err = invalid(errors.New("the path names no entity that can be deleted"))
	}
	if err != nil {
		status, detail := statusOf(err)
		writeError(w, status, detail)
		return
	}
	w.WriteHeader(http.StatusOK)
}

func invalid(err error) error {
	return &condition.Error{Condition: condition.Argument, Description: err.Error()}
}
