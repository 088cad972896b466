package core

// Describer is implemented by a [Transport] that can describe its connection, for
// telemetry.
type Describer interface {
	// Describe returns the same for the [Transport]'s whole life, or the zero value if a
	// wrapped transport is no Describer. It does no I/O.
	Describe() TransportInfo
}

// TransportInfo describes a transport for telemetry. It has no secrets: no user, and no
// part of a URL but host and port.
type TransportInfo struct {
	// System is the messaging system, as the attribute messaging.system of OpenTelemetry
	// names it: "rabbitmq", "aws_sqs", "servicebus"; for a database as db.system.name:
	// "postgresql"; for others a name in the same style.
	System string
	// ServerAddress is the host of the broker, or the first of several, or "" if there is
	// none or it is not known.
	ServerAddress string
	// ServerPort is the port there, or 0.
	ServerPort int
}

// describeTransport returns nil if the transport is no Describer or returns the zero
// value.
func describeTransport(t Transport) *TransportInfo {
	d, ok := t.(Describer)
	if !ok {
		return nil
	}
	info := d.Describe()
	if info == (TransportInfo{}) {
		return nil
	}
	return &info
}
