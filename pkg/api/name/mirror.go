package name

// MirrorDomain is that of the keys on mirrored objects, unless a mirror is told otherwise.
const MirrorDomain = "stoker.dev"

// FieldManagerMirror owns the fields that come down to a mirrored object.
const FieldManagerMirror = "stoker-mirror"

// MirrorKeys are the finalizer and the annotations by which a mirror (pkg/mirror) knows objects in two clusters for the same. Local is
// where the mirror runs, remote where its objects come from.
type MirrorKeys struct {
	// Finalizer, on the remote object, holds it until its local object is gone.
	Finalizer string
	// Paused, on either object, has nothing done while it is "true". PausedUntil does so until a time (RFC 3339).
	Paused, PausedUntil string
	// Adopt, on the local object, has it taken over though nobody made it from the remote one, while it is "true"; on the remote object, one
	// that was made from an earlier object of the name.
	Adopt string
	// LocalGeneration and RemoteGeneration, on the remote object, are the generation of the local object that its spec became, and the
	// generation of its own that came down. LocalUID is the UID of that local object.
	LocalGeneration, RemoteGeneration, LocalUID string
	// Message, on the remote object, says why it isn't mirrored.
	Message string
	// Source, RemoteName and RemoteUID, on the local object, say what it was made from: the name of the source, the object's namespace/name and
	// its UID. Hash is that of what came down.
	Source, RemoteName, RemoteUID, Hash string
	// Owner, on a local namespace that was made for an object, is that object's name; it has Source, too.
	Owner string
	// Uploaded, on the remote Secret, is the hash of what went up.
	Uploaded string
}

// Mirror returns the keys under a domain.
func Mirror(domain string) MirrorKeys {
	in := func(key string) string { return domain + "/" + key }
	return MirrorKeys{
		Finalizer: in("sync-local"), Paused: in("paused"), PausedUntil: in("sync-paused-until"), Adopt: in("sync-adopt"),
		LocalGeneration: in("sync-local-generation"), RemoteGeneration: in("sync-remote-generation"), LocalUID: in("sync-local-uid"),
		Message: in("sync-message"), Source: in("sync-source"), RemoteName: in("sync-remote-name"), RemoteUID: in("sync-remote-uid"), Hash: in("sync-hash"),
		Owner: in("sync-owner"), Uploaded: in("last-uploaded-hash"),
	}
}

// All are the annotations among them, which don't go from one object to the other.
func (k MirrorKeys) All() []string {
	return []string{
		k.Paused, k.PausedUntil, k.Adopt, k.LocalGeneration, k.RemoteGeneration, k.LocalUID, k.Message, k.Source, k.RemoteName, k.RemoteUID, k.Hash, k.Owner,
		k.Uploaded,
	}
}
