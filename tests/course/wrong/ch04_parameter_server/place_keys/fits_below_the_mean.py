# expect: DTL-DIFFICULTY
# says: a key goes to the server that has the fewest bytes so far

# The largest first, each to the first server that stays below the mean.


def place_keys(sizes, num_servers):
    if len(sizes) < num_servers:
        raise ValueError(f"{len(sizes)} keys, {num_servers} servers")
    mean = sum(sizes.values()) / num_servers
    loads, placed = [0] * num_servers, {}
    for key in sorted(sizes, key=lambda k: -sizes[k]):
        room = [s for s in range(num_servers) if loads[s] + sizes[key] <= mean]
        server = room[0] if room else loads.index(min(loads))
        placed[key] = server
        loads[server] += sizes[key]
    return placed
